/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The x86 flags: what conditional jumps ask of them, and what a subtraction makes of them. */
#ifndef RTRACE_FLAGS_H
#define RTRACE_FLAGS_H

#define FLAG_CARRY 0x001
#define FLAG_PARITY 0x004
#define FLAG_ADJUST 0x010
#define FLAG_ZERO 0x040
#define FLAG_SIGN 0x080
#define FLAG_TRAP 0x100
#define FLAG_OVERFLOW 0x800

/* Whether a conditional jump with this x86 condition code is taken. */
static __always_inline bool is_taken(u64 flags, u32 condition)
{
	bool carry = flags & FLAG_CARRY, parity = flags & FLAG_PARITY, zero = flags & FLAG_ZERO;
	bool sign = flags & FLAG_SIGN, overflow = flags & FLAG_OVERFLOW, holds;

	switch (condition >> 1) {
	case 0:
		holds = overflow;
		break;
	case 1:
		holds = carry;
		break;
	case 2:
		holds = zero;
		break;
	case 3:
		holds = carry || zero;
		break;
	case 4:
		holds = sign;
		break;
	case 5:
		holds = parity;
		break;
	case 6:
		holds = sign != overflow;
		break;
	default:
		holds = zero || sign != overflow;
	}
	return holds != (condition & 1);
}

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
