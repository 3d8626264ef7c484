"""Read run folders and other libraries' results for reports; nothing is drawn here."""
