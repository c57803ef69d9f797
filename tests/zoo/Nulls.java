// Null pointers that the virtual machine turns from SIGSEGV into exceptions, and zlib.
import java.util.zip.CRC32;
import java.util.zip.Deflater;

class Nulls {
	static int length(String s) {
		return s.length();
	}

	public static void main(String[] arguments) throws Exception {
		System.out.println("ready " + ProcessHandle.current().pid());
		while (System.in.read() != '\n') {
		}
		int caught = 0;
		long sum = 0;
		for (int i = 0; i < 20000; i++) {
			try {
				sum += length(i % 2 == 0 ? "ab" : null);
			} catch (NullPointerException e) {
				caught++;
			}
		}
		byte[] data = new byte[1000], packed = new byte[2000];
		for (int i = 0; i < 300; i++) {
			data[i] = (byte) i;
			Deflater deflater = new Deflater();
			deflater.setInput(data);
			deflater.finish();
			int size = deflater.deflate(packed);
			deflater.end();
			CRC32 crc = new CRC32();
			crc.update(packed, 0, size);
			sum += crc.getValue();
		}
		System.out.println(caught + " " + sum);
		System.out.println("truth deflateEnd 300 0");
	}
}
