"""Drawing plans and mixing rows: plain torch as the specification, and faster implementations."""
