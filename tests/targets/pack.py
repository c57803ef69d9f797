# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Packs and unpacks the same data by all the ways that Python's zlib offers."""

import zlib

data = b"".join(b"%d %x\n" % (i, i * i) for i in range(3000))
total = 0
for level in range(10):
    for size in range(100, 30_000, 300):
        packed = zlib.compress(data[:size], level)
        total += len(packed) + zlib.crc32(packed) + zlib.adler32(zlib.decompress(packed))
packer = zlib.compressobj(9, zlib.DEFLATED, 31)
for start in range(0, len(data), 64):
    total += len(packer.compress(data[start : start + 64]))
total += len(packer.flush())
print(total)
