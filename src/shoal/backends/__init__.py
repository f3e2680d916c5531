"""Ways to make a command true. A backend never decides; `protocol` says what one can do, each folder is one, none knows another."""
