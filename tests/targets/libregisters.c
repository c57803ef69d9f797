// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions that begin or end with instructions that rtrace's programs do where they may write the
// registers. Each is known to the byte, so none is left to the compiler.

#define FUNCTION(name, code) \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" code \
		".cfi_endproc\n.size " #name ", . - " #name "\n");

// Makes a frame and gives back the flags as that leaves them.
#define FRAME(size)                                                                             \
	FUNCTION(frame_##size, "sub $" #size ", %rsp\n.cfi_adjust_cfa_offset " #size "\n"       \
			       "pushfq\npop %rax\nadd $" #size ", %rsp\n.cfi_adjust_cfa_offset -" #size "\nret\n")

FRAME(8)
FRAME(24)
FRAME(120)
FRAME(128)
FRAME(2040)

// The next longer frame is too long for a program.
FRAME(2048)

// Nothing of it can be emulated.
FUNCTION(landed, "endbr64\nsub $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall *%rdi\n"
		 "add $8, %rsp\n.cfi_adjust_cfa_offset -8\nret\n")

// Left at once.
FUNCTION(nothing, "ret\n")
FUNCTION(next, "lea 1(%rdi), %eax\nrep ret\n")
