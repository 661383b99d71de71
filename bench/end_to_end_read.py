"""Plain reads of caches, for bench/end_to_end.py: what reading as many bytes takes."""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

# Words of a block, thread blocks per SM, warps.
SHAPES = [(2048, 4, 8), (4096, 2, 16), (4096, 4, 8), (2048, 8, 4)]

if triton:

    @triton.jit
    def largest_word(k, v, largest, count, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
        """largest[program] = the largest of its int32 words of k and v, of `count` words each.

        Four independent loads of BLOCK words are under way at a time, 16 bytes a thread each.
        """
        lanes = tl.arange(0, BLOCK)
        seen = tl.full((BLOCK,), -(2**31), tl.int32)
        stride = PROGRAMS * BLOCK
        for at in range(tl.program_id(0) * BLOCK, count, 2 * stride):
            here, there = at + lanes, at + stride + lanes
            a = tl.load(k + here, mask=here < count, other=-(2**31))
            b = tl.load(v + here, mask=here < count, other=-(2**31))
            c = tl.load(k + there, mask=there < count, other=-(2**31))
            d = tl.load(v + there, mask=there < count, other=-(2**31))
            seen = tl.maximum(seen, tl.maximum(tl.maximum(a, b), tl.maximum(c, d)))
        tl.store(largest + tl.program_id(0), tl.max(seen, 0))


def by_triton(pairs, shape, num_sms):
    block, per_sm, warps = shape
    programs = per_sm * num_sms
    largest = torch.empty(programs, dtype=torch.int32, device=pairs[0][0].device)

    def read(k, v):
        largest_word[(programs,)](k, v, largest, k.numel(), BLOCK=block, PROGRAMS=programs,
                                  num_warps=warps)
        return largest

    k, v = pairs[0]
    if int(read(k, v).max()) != max(int(k.max()), int(v.max())):
        raise RuntimeError("a read by Triton misses words")
    return read


def reads(layers, keys):
    """Label -> what makes a call that reads as many bytes as `keys` keys and values have.

    In all layers and layer by layer, as attention has to: one call of Triton, or two of torch,
    for each.
    """
    words = layers[0].keys[0, :, :keys].numel() * layers[0].keys.itemsize // 8 * 2
    pairs = [tuple(x.view(-1).view(torch.int32)[:words] for x in (layer.keys, layer.values))
             for layer in layers]
    ways = {
        "torch sum of int64": lambda: lambda k, v: [x.view(torch.int64).sum() for x in (k, v)],
        "torch max of int32": lambda: lambda k, v: [x.amax() for x in (k, v)],
    }
    if triton and pairs[0][0].is_cuda and words < 2**31 - 2**24:
        num_sms = torch.cuda.get_device_properties(0).multi_processor_count
        for shape in SHAPES:
            label = "triton {}x{}, {} warps".format(*shape)
            ways[label] = lambda shape=shape: by_triton(pairs, shape, num_sms)

    def over_all(make):
        way = make()
        return lambda: [way(k, v) for k, v in pairs]

    return {label: lambda make=make: over_all(make) for label, make in ways.items()}
