"""headtail beside other servers under one load, in a harness that loads any server which a small adapter describes."""
