"""The flight recorder: the last events of a machine, kept, saved and run again."""
