module braid/crates/cli/tests/go

go 1.20

require (
	github.com/Merovius/nbd v0.0.0-20231017152624-27b78b60d8da
	github.com/pojntfx/go-nbd v0.3.2
)

require (
	github.com/google/go-cmp v0.5.9 // indirect
	github.com/josharian/native v1.1.0 // indirect
	github.com/mdlayher/genetlink v1.3.2 // indirect
	github.com/mdlayher/netlink v1.7.2 // indirect
	github.com/mdlayher/socket v0.4.1 // indirect
	golang.org/x/net v0.17.0 // indirect
	golang.org/x/sync v0.2.0 // indirect
	golang.org/x/sys v0.13.0 // indirect
)
