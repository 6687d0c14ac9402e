"""``ckpt-inspect``: browse, compare and validate checkpoints and capture ledgers."""
