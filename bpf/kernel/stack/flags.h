/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The x86 flags: what a subtraction makes of them. */
#ifndef RTRACE_FLAGS_H
#define RTRACE_FLAGS_H

#define FLAG_CARRY 0x001
#define FLAG_PARITY 0x004
#define FLAG_ADJUST 0x010
#define FLAG_ZERO 0x040
#define FLAG_SIGN 0x080
#define FLAG_TRAP 0x100
#define FLAG_OVERFLOW 0x800

static __always_inline u64 flags_after_sub(u64 flags, u64 from, u64 what)
{
	u64 result = from - what, low = result & 0xff;

	flags &= ~(u64)(FLAG_CARRY | FLAG_PARITY | FLAG_ADJUST | FLAG_ZERO | FLAG_SIGN | FLAG_OVERFLOW);
	flags |= from < what ? FLAG_CARRY : 0;
	flags |= (from ^ what ^ result) & FLAG_ADJUST;
	flags |= result ? 0 : FLAG_ZERO;
	flags |= result >> 63 ? FLAG_SIGN : 0;
	flags |= ((from ^ what) & (from ^ result)) >> 63 ? FLAG_OVERFLOW : 0;
	low ^= low >> 4;
	low ^= low >> 2;
	low ^= low >> 1;
	return flags | (low & 1 ? 0 : FLAG_PARITY);
}

#endif
