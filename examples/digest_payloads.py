"""Print the SHA-256 of every agent session of a checkpoint, as a fresh process reads them."""

from __future__ import annotations

import hashlib
import sys

from ckptfmt.checkpoint import open_checkpoint
from ckptfmt.schema import AgentRecord

checkpoint = open_checkpoint(sys.argv[1])
for participant in checkpoint.participants:
    for record in checkpoint.participant(participant).load():
        if isinstance(record, AgentRecord):
            print(hashlib.sha256(record.session.json_bytes()).hexdigest())
