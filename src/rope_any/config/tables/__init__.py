"""
The facts about models that their configs do not give, as tables of rows.

`rows` has the types of the rows, with the meaning and the default of each field; `rules` has the functions that rows
name. A table imports only these, and everything that reads configs imports the tables.
"""
