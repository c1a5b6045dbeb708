"""Everything that touches an ONNX graph. Only the modules of this subpackage import `onnx`.

From a file to the parts of a bundle:

    recipe = Recipe(path, shapes=("1,3,192,192",), preprocess="image", postprocess="peaks:k=32")
    whole = build(recipe)                          # recipe: load, normalise, pre- and post-processing; cut 0 is uint8
    small = build_at_resolution(recipe, 128, 128)  # recipe: the same interface, run at a lower resolution
    candidates = find_cuts(whole)                  # cuts: input first, single-tensor borders, outputs last
    forced = cut_at(whole, "491")                  # cuts: everything 491 needs on the device, whatever then crosses
    chain = split(whole, [forced])                 # split: nested parts from cut to cut
    programs = write_programs({"whole": chain, "r128": split(small, [])}, folder)   # weights: files and weights.bin
    run_model(whole, inputs)                       # run: one execution, as a reference
"""
