"""Speech APIs for existing clients: one folder for each dialect, over one shared engine stream."""
