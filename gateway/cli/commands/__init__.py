"""The commands: one file or folder each, which ``main.COMMANDS`` lists."""
