/* base/mutant.h -- named faults of our own, compiled only into the test build, each of which the crash tests must
 * catch.
 *
 * A crash test that passes proves something only if it fails when the protocol is broken. Without
 * FARLOG_FAULT every MUTANT(x) is the constant 0 and the compiler removes it. */
#ifndef FARLOG_MUTANT_H
#define FARLOG_MUTANT_H

enum farlog_mutant {
	MUTANT_NONE = 0,
	MUTANT_NO_LSN_CHECK = 1,
	MUTANT_CRC_HEADER_ONLY = 2,
	MUTANT_FLUSH_LAST_ONLY = 3,
	MUTANT_CREDIT_BEFORE_HEAD = 4,
	MUTANT_HEAD_BEFORE_STORE = 5, /* acted out by the drain, not by the C core */
	MUTANT_EPOCH_NOT_PERSISTED = 6,
	MUTANT_EPOCH_ORDER_UNCHECKED = 7,
	MUTANT_RECOVERY_NO_FLUSH = 8,
	MUTANT_HEAD_FLUSHED_EARLY = 9, /* an opening writer believes a head that nobody has flushed yet */
	MUTANT_ANSWERED_EARLY = 10,    /* a target says that it has flushed, and has not */
	MUTANT_NOT_SENT_AGAIN = 11,    /* a far region leaves out what a broken link had under way */
	/* a far writer takes the end of the piece that it has fetched for the end of the log */
	MUTANT_PIECE_IS_ALL = 12,
	/* a target flushes the place of bytes that came with the request, and leaves them where they were */
	MUTANT_NOT_PUT = 13,
	MUTANT_ACKED_OUT_OF_ORDER = 20,    /* blocks: a commit counts as done when one of its commands has come back */
	MUTANT_LBA_WRITTEN_AGAIN = 21,     /* blocks: a commit takes the last LBA of the one before along */
	MUTANT_NO_FUA = 22,                /* blocks: writes into a cache that forgets */
	MUTANT_PACKED_ON = 23,             /* blocks: a commit goes on in the LBA in which the one before ended */
	MUTANT_PAD_MISSING = 24,           /* blocks: the next commit begins on a fresh LBA, and nothing says so */
	MUTANT_PAD_SHORT = 25,             /* blocks: a commit's PAD ends before its LBA */
	MUTANT_PAD_NOT_SENT = 26,          /* blocks: a commit is sent without the LBA of its PAD */
	MUTANT_DIRECTORY_NOT_DURABLE = 27, /* blocks: a directory is stored in a cache that forgets */
	MUTANT_DIRECTORY_IN_PLACE = 28,    /* the copy of a directory that counts is written first */
	MUTANT_ENTRY_BEFORE_RING = 29,     /* a ring is in its directory before it has been made */
	/* blocks: a takeover registers, and leaves the former writer's host registered as well */
	MUTANT_NOT_PREEMPTED = 30,
	MUTANT_RECOVERED_FIRST = 31,   /* blocks: a takeover finds the tail, and shuts the former writer out only then */
	MUTANT_REFUSED_IS_FENCED = 32, /* blocks: a write that the device refused is said not to be there */
	MUTANT_OLD_LOOK = 34,          /* blocks: a look that was asked for long ago counts as one of now */
	/* blocks: a writer that has rested does not look before it commits, though the target may have forgotten the
	 * fence */
	MUTANT_NOT_WARY = 33,
	/* blocks: a drain reads ahead of what is durable, and uses it without reading again */
	MUTANT_AHEAD_OF_DURABLE = 35,
	/* blocks: a writer of a ring in a directory does not tell the other hosts that it is opening */
	MUTANT_NOT_ANNOUNCED = 36,
	MUTANT_FORMER_NOT_ASKED = 37, /* blocks: it follows one that was not closed, on whatever host */
	/* blocks: a target lets the next writer on before it is on the media that the former one is out */
	MUTANT_OUT_NOT_DURABLE = 38,
	/* members: what enough of them have is given out, without a record of the newest epoch behind it */
	MUTANT_OLD_EPOCH_ENOUGH = 39,
	MUTANT_RELEASED_UNSEEN = 40,  /* members: a reader gives out, and so a drain releases, what one of them has */
	MUTANT_RECOVERED_ON_FEW = 41, /* members: one fewer than n - k + 1 are enough to recover from */
	MUTANT_EPOCH_ON_FEW = 42,     /* members: an epoch is used when one member knows it */
	MUTANT_JOINER_COUNTED = 43,   /* members: one that lacks what came before it joined counts */
	MUTANT_REUSED_EARLY = 44,     /* members: an evicted one is opened again while what it was sent may still land */
	MUTANT_LONGEST_LOG = 45,      /* members: the longest log is taken, whatever its last epoch */
	MUTANT_HIGHEST_CREDIT = 46,   /* members: what one head has passed is written over */
	MUTANT_ACKED_ON_FEW = 47,     /* members: one fewer than k are enough for an acknowledgement */
	/* members: what lies behind the beginning of an epoch that a superblock knows is taken up again */
	MUTANT_NOT_CUT = 49,
	MUTANT_FIRST_ON_FEW = 60,   /* members: rings that are new are taken for a new stream, though others are away */
	MUTANT_NEW_RING_FIRST = 61, /* members: a ring that is new is told an epoch before the others are */
	/* members: a drain begins at the head of a ring that was put in the place of another one */
	MUTANT_NEW_RING_KNOWS_HEAD = 62,
	MUTANT_OLD_RING_COUNTED = 63, /* members: a ring that was replaced while the writer runs still counts */
	MUTANT_NEW_RING_EARLY = 64,   /* members: the one in its place is told the epoch before it has caught up */
	MUTANT_NEW_RING_USED = 65,    /* members: it may know epochs */
	/* members: its superblock says that it has all that was undrained when the writer opened */
	MUTANT_NEW_RING_FLOOR_LOW = 66,
	/* members: it is told the epoch while enough others do not know that for an earlier one to be opened */
	MUTANT_NEW_RING_ALONE = 67,
	/* a target lets a writer in anew, and what its former connection has on the way lands all the same */
	MUTANT_FORMER_LET_LAND = 68,
	MUTANT_OPENING_REFUSES = 69, /* members: a stream that was written is opened by nobody any more */
	/* members: a reader takes a member that knows the newest epoch for one that has the records, too */
	MUTANT_RELEASE_UNCOMPARED = 70,
	MUTANT_NO_ROOM_FOR_EPOCH = 71, /* members: appends fill the ring, and leave nothing for the next writer's epoch */
	/* members: a drain never looks again at the one that it read last, when another one has a newer epoch */
	MUTANT_READ_UNLOOKED = 72,
	/* members: a drain goes on below a head that a member has which was away when it began */
	MUTANT_HEAD_OF_LATE_UNSEEN = 73,
	/* members: an opening that finds no room for its epoch leaves too few that know the newest one */
	MUTANT_FULL_UNTOLD = 74,
	/* members: a drain takes nothing for sure that has no record of the newest epoch behind it */
	MUTANT_BEGINNING_UNSEEN = 75,
	MUTANT_ROLES_TAKEN_FIRST = 76, /* members: a device is taken before its ring is asked for who came after */
	MUTANT_START_UNSEEN = 90,      /* a tail below the beginning of the newest epoch is taken for the end of the log */
	MUTANT_LATER_UNSEEN = 91,      /* blocks: and one below a later commit */
	MUTANT_NO_FLOOR = 48,          /* members: an epoch does not say where its undrained records began */
	MUTANT_SPILL_UNFLUSHED = 50,   /* routes: a record in a spill is acknowledged before the flush */
	MUTANT_SPILL_RELEASED_EARLY = 51, /* routes: a spill's head moves before the leg's ring has the record durable */
	MUTANT_SPILL_SENT_AGAIN = 52,     /* routes: what the leg's ring has already is appended again */
	/* routes: a leg's ring gets its next epoch before the spill knows what the last one had */
	MUTANT_SPILL_HEAD_LATE = 53,
	/* routes: a record goes to the spill, and nothing says that it may be in the leg's ring */
	MUTANT_SPILL_PLACE_UNSAID = 54,
	MUTANT_GAP_UNCOUNTED = 55,       /* routes: a dropped record is in no GAP record */
	MUTANT_SPILL_CARRIED_EARLY = 57, /* routes: a record is carried that the spill may lose yet */
	MUTANT_SPILL_NOT_BEGUN = 58,     /* routes: an empty spill keeps the place of records that went straight on */
	MUTANT_LEVEL_UNASKED = 83,       /* terms: a stronger level is said, and the members are not asked for it */
	MUTANT_LEVEL_OF_BEFORE = 84,     /* terms: and of what was appended before it, too */
	MUTANT_LEVEL_LOWERED_EARLY = 85, /* terms: a weaker level holds for what was appended before it */
	MUTANT_FENCE_NOT_FLUSHED = 86,   /* a fence persists what it has stored alone, which nothing but a flush takes */
	/* a drain persists the head that another one stored, which nothing but a flush takes */
	MUTANT_SETTLED_BY_PERSIST = 87,
	MUTANT_MSYNC_LAST_PAGE = 88,      /* files: msync of the last page of a range alone */
	MUTANT_MSYNC_NOT_FIRST_PAGE = 89, /* files: of all but its first */
	MUTANT_MSYNC_NOT_LAST_PAGE = 90,  /* files: of all but its last */
	MUTANT_MSYNC_NO_HEADER = 91,      /* files: none of the header */
	MUTANT_MSYNC_ONE_SPAN = 92,       /* files: of a commit that goes over the ring's end, the part before it alone */
	/* a target says where a fenced writer's log ends, and leaves what it stored in caches */
	MUTANT_FENCED_NOT_FLUSHED = 93,
	MUTANT_FLOOR_NOT_FLUSHED = 94, /* a target confirms a fence, and leaves the epoch floor in a cache */
	MUTANT_KEPT_BY_ONE = 110,      /* members: what one member kept of a fenced writer counts as acknowledged */
	MUTANT_COUNTED_UNTOLD = 111,   /* members: a member counts that was not told the epoch */
	MUTANT_LOST_TELLS = 112,       /* members: a log counts that ends below the durable hint of its member */
	/* members: and one that ends below the beginning of the epoch that its member knows */
	MUTANT_LOST_START_TELLS = 113,
	MUTANT_TURNS_BY_EPOCH = 114, /* members: two logs are compared by their epochs, wherever these begin */
	/* members: a member that knows this number is taken for one that was told by this writer */
	MUTANT_EPOCH_BY_NUMBER = 115,
	/* members: what a drain saw of a member counts, though its connection is another one by now */
	MUTANT_COMEBACK_UNSEEN = 116,
	MUTANT_OPTIONAL_AWAITED = 56, /* routes: an append waits for an optional leg */
	MUTANT_SPILL_RUN_APART = 80,  /* routes: of a batch that is late each record says its own place anew */
	/* routes: a heartbeat takes a seq in a leg's ring, and the spill's head does not say so */
	MUTANT_BEAT_UNSAID = 82,
	MUTANT_SPILL_RUN_UNASKED = 81, /* routes: a batch goes straight on without room for all of it in the spill */
};

#ifdef FARLOG_FAULT
extern int farlog_mutant;
#define MUTANT(name) (farlog_mutant == MUTANT_##name)
#else
#define MUTANT(name) 0
#endif

#endif
