"""
The only place where judgement meets hands: one use-case module per noun, steps that drive themselves forward, and the plane they share.

START HERE: `plane`, then `steps`. How a job changes, whoever asks, is in `lanes`.
"""
