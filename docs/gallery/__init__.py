"""What ``make gallery`` makes: the stories of the documentation, and a contact sheet of reports."""
