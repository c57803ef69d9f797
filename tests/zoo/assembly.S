# SPDX-License-Identifier: Apache-2.0 OR MIT
# Exported code that has no type, as hand-written assembly often is.
	.text
	.globl untyped
untyped:
	lea 1(%rdi), %eax
	nop
	ret
	.section .note.GNU-stack, "", @progbits
