"""Drawing plans and mixing rows: plain torch as the specification, faster paths beside it."""
