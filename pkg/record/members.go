package record

import "errors"

// ErrCut tells that a record is no longer of the log: a later epoch began at or below its place
// (docs/explanation/members.md).
var ErrCut = errors.New("the log is cut")

// Start is where undrained records begin, as one of several members knows it: at its head, or where its superblock says
// that they began when the epoch was opened.
func (im *Image) Start() HeadSlot {
	if im.Superblock.Floor.HeadLSN > im.Head.HeadLSN {
		return im.Superblock.Floor
	}
	return im.Head
}

// WalkMember goes along the log of one of several members as the next opening reads it: from start, the highest of all
// members', believing no epoch above that of the newest superblock, which cuts it.
func (im *Image) WalkMember(start HeadSlot, newest Superblock) *Walker {
	walk := im.WalkUncut(start, newest.WriterEpoch)
	walk.newest = newest
	return walk
}

// WalkUncut is WalkMember over all that lies there, whether it is still of the log or not.
func (im *Image) WalkUncut(start HeadSlot, epochMax uint32) *Walker {
	return &Walker{im: im, start: start.HeadLSN, cursor: Cursor{
		LSN: start.HeadLSN, Seq: start.HeadSeq,
		Epoch: start.LastEpoch, EpochMax: epochMax,
	}}
}
