"""Profiles as files: what a model costs on one machine, measured there or worked out, to be used elsewhere.

    profile = load_profile(path)                      # file: typed, of a stated format
    bucket = check_same_model(profile, model.digest)  # lookup: refuses a profile of another model
    device_us = times_for(profile, find_groups(...))  # lookup: microseconds by group, which add up to the whole
    whole_us(profile, batch=1)                        # lookup

`record` is what the file holds, `mapping` and `scaling` are how kernels become groups, `roofline` is for hardware that one
does not have, `diff` compares two files; all of these only compute. `measure` measures, `machine` says on what, `remote` has
another machine do it.
"""
