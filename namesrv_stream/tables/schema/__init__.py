"""Names, columns, properties and rows of the tables, without Delta: what writers and readers must agree on."""
