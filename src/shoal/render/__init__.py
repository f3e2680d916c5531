"""Values to text for people: tables, screens, bars. Pure functions of a value and a `Look`; nothing here asks a terminal or a clock."""
