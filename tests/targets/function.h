// SPDX-License-Identifier: Apache-2.0 OR MIT
// What begins and ends a function in assembly.
#include <cet.h>

	.text

.macro function name
	.globl \name
	.protected \name
	.type \name, @function
	.p2align 4
\name:	.cfi_startproc
	_CET_ENDBR
.endm

.macro end name
	.cfi_endproc
	.size \name, . - \name
.endm
