// SPDX-License-Identifier: Apache-2.0 OR MIT
// Functions whose calls begin and end at jumps: the comments say at which.

// leaf
int leaf(int n)
{
	volatile int sum = 0;

	for (int i = 0; i <= n % 4; i++)
		sum += i;
	return sum;
}

__asm__(
	// framed(n), where n >= 0 framed(leaf): begins at `js` below its frame, and is over there where that
	// jumps; else over at `je`, which it checks its frame by.
	".text\n.globl framed\n.type framed,@function\n"
	"framed: .cfi_startproc\n"
	"sub $24, %rsp\n.cfi_adjust_cfa_offset 24\n"
	"test %edi, %edi\n"
	"js 1f\n"
	"call leaf@plt\n"
	"cmp $-1, %eax\n"
	"je 2f\n"
	"add $24, %rsp\n.cfi_remember_state\n.cfi_adjust_cfa_offset -24\n"
	"ret\n"
	"1: .cfi_restore_state\n"
	"xor %eax, %eax\n"
	"add $24, %rsp\n.cfi_remember_state\n.cfi_adjust_cfa_offset -24\n"
	"ret\n"
	"2: .cfi_restore_state\n"
	"ud2\n"
	".cfi_endproc\n.size framed,.-framed\n"

	// several(callback, n), which calls back once, twice or three times: over at `jmp`, at `je`, and at
	// the instruction before the end, which no jump leads to.
	".globl several\n.type several,@function\n"
	"several: .cfi_startproc\n"
	"push %rbx\n.cfi_adjust_cfa_offset 8\n"
	"push %rbp\n.cfi_adjust_cfa_offset 8\n"
	"sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
	"mov %rdi, %rbp\n"
	"mov %esi, %ebx\n"
	"mov %ebx, %edi\n"
	"call *%rbp\n"
	"cmp $1, %ebx\n"
	"je 3f\n"
	"jg 2f\n"
	"mov %ebx, %edi\n"
	"call *%rbp\n"
	"jmp 3f\n"
	"2: mov %ebx, %edi\n"
	"call *%rbp\n"
	"mov %ebx, %edi\n"
	"call *%rbp\n"
	"mov $3, %eax\n"
	"3: add $8, %rsp\n.cfi_adjust_cfa_offset -8\n"
	"pop %rbp\n.cfi_adjust_cfa_offset -8\n"
	"pop %rbx\n.cfi_adjust_cfa_offset -8\n"
	"ret\n"
	".cfi_endproc\n.size several,.-several\n"

	// lock(word, callback), which calls back if it was locked: begins and is over at `jne` if it was not.
	".globl lock\n.type lock,@function\n"
	"lock: .cfi_startproc\n"
	"mov $1, %eax\n"
	"xchg %eax, (%rdi)\n"
	"test %eax, %eax\n"
	"jne 1f\n"
	"ret\n"
	"1: push %rbx\n.cfi_adjust_cfa_offset 8\n"
	"mov %rdi, %rbx\n"
	"xor %edi, %edi\n"
	"call *%rsi\n"
	"movl $0, (%rbx)\n"
	"pop %rbx\n.cfi_adjust_cfa_offset -8\n"
	"ret\n"
	".cfi_endproc\n.size lock,.-lock\n"

	// chosen(n), which is over at one jump whichever way that goes; where n is 0 it was chosen(leaf).
	".globl chosen\n.type chosen,@function\n"
	"chosen: .cfi_startproc\n"
	"push %rbx\n.cfi_adjust_cfa_offset 8\n"
	"mov %edi, %ebx\n"
	"call leaf@plt\n"
	"test %ebx, %ebx\n"
	"je 1f\n"
	"mov $1, %eax\n"
	"pop %rbx\n.cfi_remember_state\n.cfi_adjust_cfa_offset -8\n"
	"ret\n"
	"1: .cfi_restore_state\n"
	"xor %eax, %eax\n"
	"pop %rbx\n.cfi_adjust_cfa_offset -8\n"
	"ret\n"
	".cfi_endproc\n.size chosen,.-chosen\n");
