"""The SQL files of the history: views over the tables, and one file per question. ``database.sql_text`` reads them."""
