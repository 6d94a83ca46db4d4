"""The paper's values, the folder of records, and the search for the default of ZetaMix."""
