// SPDX-License-Identifier: Apache-2.0 OR MIT
// The functions of libbare.c that change the stack.
#include "function.h"

function w_nlr_push
	mov	(%rsp), %rax
	mov	%rax, (%rdi)
	mov	%rbp, 8(%rdi)
	mov	%rsp, 16(%rdi)
	mov	%rbx, 24(%rdi)
	mov	%r12, 32(%rdi)
	mov	%r13, 40(%rdi)
	mov	%r14, 48(%rdi)
	mov	%r15, 56(%rdi)
	jmp	w_nlr_push_tail
end w_nlr_push

function w_nlr_jump
	mov	(%rdi), %rax
	mov	8(%rdi), %rbp
	mov	16(%rdi), %rsp
	mov	24(%rdi), %rbx
	mov	32(%rdi), %r12
	mov	40(%rdi), %r13
	mov	48(%rdi), %r14
	mov	56(%rdi), %r15
	mov	%rax, (%rsp)
	mov	$1, %eax
	ret
end w_nlr_jump

function u_switch
	push	%rbp
	push	%rbx
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%rsp, (%rdi)
	mov	%rsi, %rsp
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbx
	pop	%rbp
	ret
end u_switch

	.section .note.GNU-stack, "", @progbits
