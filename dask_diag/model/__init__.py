"""The data model: a Recording, and the tables of which it is made."""
