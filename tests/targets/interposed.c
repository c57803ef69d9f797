// SPDX-License-Identifier: Apache-2.0 OR MIT
// To be loaded before the libraries of a program that knows nothing of it: it calls functions of the C library and of
// libcrypto for the program, and writes what was passed and returned to the file `TOLD` at the end, as values.c does.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST (64 << 20)
static char told[MOST];
static size_t length;

// Nothing here may call what is told of.
__attribute__((destructor)) static void end(void)
{
	int file = syscall(SYS_openat, AT_FDCWD, getenv("TOLD"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
	size_t at = 0;

	while (at < length) {
		long written = syscall(SYS_write, file, told + at, length - at);

		if (written <= 0)
			abort();
		at += written;
	}
}

#define TELL(...)                                                                    \
	do {                                                                         \
		length += snprintf(told + length, MOST - length, __VA_ARGS__);       \
		if (length > MOST - 1000)                                            \
			abort();                                                     \
	} while (0)
#define REAL(name)                                                                   \
	({                                                                           \
		static __typeof__(name) *real;                                       \
		if (!real)                                                           \
			real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);          \
		real;                                                                \
	})

// Of a call of the C library, which leaves its error number to the program.
static void tell_transfer(const char *name, int fd, const void *buffer, size_t count, ssize_t result)
{
	int error = errno;

	TELL("%s\tfd=%d\tbuf=%ld\tcount=%ld\tresult=%ld\terrno=", name, fd, (long)buffer, count, result);
	if (result < 0)
		TELL("%d\n", error);
	else
		TELL("-\n");
	errno = error;
}

ssize_t read(int fd, void *buffer, size_t count)
{
	ssize_t result = REAL(read)(fd, buffer, count);

	tell_transfer("read", fd, buffer, count, result);
	return result;
}

ssize_t write(int fd, const void *buffer, size_t count)
{
	ssize_t result = REAL(write)(fd, buffer, count);

	tell_transfer("write", fd, buffer, count, result);
	return result;
}

int EVP_DigestUpdate(void *context, const void *data, size_t count)
{
	int result = REAL(EVP_DigestUpdate)(context, data, count);

	TELL("EVP_DigestUpdate\tctx=%ld\td=%ld\tcnt=%ld\tresult=%d\n", (long)context, (long)data, count, result);
	return result;
}
