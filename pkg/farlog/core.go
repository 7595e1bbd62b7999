package farlog

// The C core: a package a room, which has no Go of its own.
import (
	_ "github.com/farlog/farlog/rdma/include/farlog"
	_ "github.com/farlog/farlog/rdma/src/admin"
	_ "github.com/farlog/farlog/rdma/src/agent"
	_ "github.com/farlog/farlog/rdma/src/base"
	_ "github.com/farlog/farlog/rdma/src/blocks"
	_ "github.com/farlog/farlog/rdma/src/far"
	_ "github.com/farlog/farlog/rdma/src/log"
	_ "github.com/farlog/farlog/rdma/src/mem"
	_ "github.com/farlog/farlog/rdma/src/members"
	_ "github.com/farlog/farlog/rdma/src/open"
	_ "github.com/farlog/farlog/rdma/src/region"
	_ "github.com/farlog/farlog/rdma/src/ring"
	_ "github.com/farlog/farlog/rdma/src/route"
	_ "github.com/farlog/farlog/rdma/src/scan"
	_ "github.com/farlog/farlog/rdma/src/target"
	_ "github.com/farlog/farlog/rdma/src/wire"
)
