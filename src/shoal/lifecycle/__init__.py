"""
What follows from an event: pure functions from a picture, an event and a time to a `ChangeSet`.

Start at `states` (which transitions there are), then `job.advance_job` (what each event does to a gang). `enact` carries a plan's
decision into records and commands, `node` is the only place that sets health, `lease` has the one formula behind "at most once".
Called by `control` alone (and by agents for `lease`). Knows no clock, no store, no network.
"""
