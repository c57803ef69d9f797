// SPDX-License-Identifier: Apache-2.0 OR MIT
// Generated code that calls from where a plug-in called before (`generated`), and a plug-in whose text is mapped shared
// (`shared`, and `late` after it is ready).
#include "zoo.h"

// The plug-in calls from the 13th byte, as generated code does that has the callee's address in an instruction.
#define AFTER "lea (%rax,%rax),%ebx; mov %ebx,%eax; pop %rbx; ret\n"

#ifdef PLUG
__asm__(".globl p_run\n.type p_run,@function\n"
	"p_run: push %rbx; .skip 7,0x90; call z_leaf@PLT; " AFTER ".size p_run,.-p_run\n");
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, CALLS = 50, CALL_ENDS = 13 };

static int called(int (*run)(int))
{
	int sum = 0;

	for (int i = 0; i < CALLS; i++) {
		sum += run(i);
		usleep(2000);
	}
	return sum;
}

// The same bytes behind the call, in memory of no file.
static void generate(char *run, char *page)
{
	char code[PAGE], *at = code + (run - page);
	int (*leaf)(int) = z_leaf;

	memcpy(code, page, PAGE);
	memcpy(at, "\x53\x48\xb8", 3);
	memcpy(at + 3, &leaf, sizeof(leaf));
	memcpy(at + 11, "\xff\xd0\x8d\x1c\x00\x89\xd8\x5b\xc3", 9);
	mmap(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memcpy(page, code, PAGE);
}

static void share(const char *path, char *page)
{
	Dl_info info;

	dladdr(page, &info);
	mmap(page, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, open(path, O_RDONLY), page - (char *)info.dli_fbase);
}

int main(int argc, char **argv)
{
	const char *how = argc > 2 ? argv[2] : "";
	void *plug = dlopen(argv[1], RTLD_NOW);
	int (*run)(int) = plug ? (int (*)(int))dlsym(plug, "p_run") : NULL;
	char *page = (char *)((uintptr_t)run & ~(PAGE - 1UL));
	int sum;

	if (!strcmp(how, "shared"))
		share(argv[1], page);
	ready();
	sum = called(run);
	if (!strcmp(how, "generated"))
		generate((char *)run, page);
	else if (!strcmp(how, "late"))
		share(argv[1], page);
	sum += called(run);
	dprintf(STDOUT_FILENO, "sum %d\n", sum);
	truth("z_leaf", 2 * CALLS, 0);
	return 16;
}
#endif
