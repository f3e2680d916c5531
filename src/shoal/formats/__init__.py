"""Files and forms of people and of other tools, to records and back. Pure."""
