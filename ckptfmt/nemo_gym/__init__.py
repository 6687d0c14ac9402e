"""NeMo Gym's own layout of a checkpoint, read and written; ``docs/nemo-gym.md`` describes it.

===========  ====================================================================
``layout``   file names, the participant's manifest, and recognising the layout
``lines``    a record as Gym spells it, and as this format does
``stream``   the records of one file, and the index that the layout lacks
``reader``   :class:`GymCheckpoint` and :class:`GymReader`
``writer``   one participant, written create-only
``convert``  whole checkpoints, from here to there and back
===========  ====================================================================

Whoever opens a checkpoint goes through :mod:`ckptfmt.layouts`, which tells the layouts
apart by looking.
"""
