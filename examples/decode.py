import numpy as np

import leanattn

# Four sequences of up to 1000 keys in 8 KV heads of 128; a query of 32 heads for each.
rng = np.random.default_rng()
q = rng.standard_normal((4, 1, 32, 128)).astype(np.float16)
k, v = rng.standard_normal((2, 4, 1000, 8, 128)).astype(np.float16)
lengths = np.array([1000, 10, 0, 512], np.int32)
out, lse = leanattn.decode(q, k, v, lengths, lse=True)

# A decoder plans once, and runs the plan at every step.
plan = leanattn.plan(q, k, v)
workspace = plan.make_workspace()
out = plan.run(q, k, v, lengths, out=out, workspace=workspace)
print(plan)
