"""
The arithmetic: every question that a platform team argues about, as a pure function with its model, its range and its refusals.

Start at `catalogue` (the questions), `plan` (one question answered) and any module of a question (`coldstart`, `spot`, ...). Each
question has a record of inputs with units, a function from it to an `Answer`, and a `validate` with the refusals of a plan on paper;
the functions themselves answer for every input, because a live system must. `trials` holds simulations that the formulas are tested
against. Knows no clock, no chance and no machine.
"""
