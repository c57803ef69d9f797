// SPDX-License-Identifier: Apache-2.0 OR MIT
// Ten thousand functions.

	.macro function
	.globl	many_\@
	.type	many_\@, @function
many_\@:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset 8
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	many_\@, . - many_\@
	.endm

	.text
	.rept	10000
	function
	.endr

	.section .note.GNU-stack, "", @progbits
