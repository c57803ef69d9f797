// SPDX-License-Identifier: Apache-2.0 OR MIT
// The functions of ways.h that no compiler makes.
#include "function.h"

.macro grow bytes
	sub	$\bytes, %rsp
	.cfi_adjust_cfa_offset \bytes
.endm

.macro shrink bytes
	add	$\bytes, %rsp
	.cfi_adjust_cfa_offset -\bytes
.endm

.macro save register
	push	%\register
	.cfi_adjust_cfa_offset 8
.endm

.macro restore register
	pop	%\register
	.cfi_adjust_cfa_offset -8
.endm

// A function that calls another one and returns right behind that.
.macro only name callee
	function \name
	grow	8
	call	\callee
	shrink	8
	ret
	end \name
.endm

only w_only w_leaf
only w_only_twice w_only
only w_only_tail w_tail_direct
only w_only_dive w_dive
only u_only w_leaf
only u_only_2 u_only
only u_only_3 u_only_2
only u_only_4 u_only_3
only u_only_5 u_only_4
only u_only_deep u_only_5

function u_only_bare_2
	call	w_leaf
	ret
end u_only_bare_2

// Two of them, so that the stack is aligned in w_leaf.
function u_only_bare
	call	u_only_bare_2
	ret
end u_only_bare

function u_only_pops
	save	rbx
	save	r12
	save	r13
	call	w_leaf
	restore	r13
	restore	r12
	restore	rbx
	ret
end u_only_pops

function u_only_leave
	save	rbp
	mov	%rsp, %rbp
	.cfi_def_cfa_register rbp
	sub	$32, %rsp
	call	w_leaf
	leave
	.cfi_def_cfa rsp, 8
	ret
end u_only_leave

// Two arguments on the stack, which it takes off.
function w_pop
	mov	8(%rsp), %edi
	grow	8
	call	w_leaf
	add	24(%rsp), %eax
	shrink	8
	ret	$16
end w_pop

function w_loop
	dec	%edi
	jg	w_loop
	mov	%edi, %eax
	ret
end w_loop

function w_loop_behind
	push	%rbx
1:	mov	%edi, %ebx
	push	%rbx
	pop	%rbx
	dec	%edi
	jg	1b
	mov	%edi, %eax
	pop	%rbx
	ret
end w_loop_behind

function u_call_pop
	grow	8
	pushq	$7
	.cfi_adjust_cfa_offset 8
	push	%rdi
	.cfi_adjust_cfa_offset 8
	call	w_pop
	.cfi_adjust_cfa_offset -16
	add	$1, %eax
	shrink	8
	ret
end u_call_pop

// Its first instruction may fault.
	.globl w_load
	.protected w_load
	.type w_load, @function
w_load:	.cfi_startproc
	mov	(%rdi), %eax
	ret
end w_load

function w_table
	mov	%edi, %eax
	and	$3, %eax
	lea	.Ltable(%rip), %rdx
	movslq	(%rdx,%rax,4), %rax
	add	%rdx, %rax
	notrack jmp *%rax
.Lnothing:
	lea	4(%rdi), %eax
	ret
.Ljump:	jmp	w_leaf
.Lcall:	grow	8
	call	w_leaf
	shrink	8
	ret
.Lthrough:
	lea	w_other(%rip), %rax
	jmp	*%rax
end w_table

	.section .rodata
	.p2align 2
.Ltable:
	.long	.Lnothing - .Ltable, .Ljump - .Ltable, .Lcall - .Ltable, .Lthrough - .Ltable
	.text

	.section .note.GNU-stack, "", @progbits
