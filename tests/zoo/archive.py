# Packs and unpacks an archive in memory, and JSON.
import io
import json
import zipfile
import zlib

print("ready", flush=True)
input()
text = b"".join(b"line %d\n" % (number * 7919 % 10007) for number in range(20000))
total = 0
for turn in range(12):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in range(50):
            archive.writestr(f"{part}.txt", text[part * 1000 : part * 1000 + 4000])
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            total = zlib.crc32(archive.read(name), total)
    values = json.loads(json.dumps([{"turn": turn, "values": list(range(3000))}] * 5))
    total = zlib.adler32(repr(values).encode(), total)
print(total)
