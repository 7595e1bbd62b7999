package plan

import (
	"math"
	"time"
)

// sitePath is what lies between two hosts.
type sitePath struct {
	km     float64
	gear   time.Duration // one way, without cards
	bits   float64       // of the slowest link; 0 = not known
	stages []stage
}

// stage is a link in one of its directions.
type stage struct {
	link   int
	isBack bool // from its second site to its first
}

func (w sitePath) oneWay() time.Duration {
	return time.Duration(w.km*float64(fibrePerKM)) + w.gear
}

func (w sitePath) along(path Path) sitePath {
	w.km += path.KM
	w.gear += time.Duration(path.Hops) * path.Hop
	return w
}

// site is what is said of one; of one that is not declared, that it has no length.
func (in Input) site(name string) Path {
	for _, site := range in.Sites {
		if site.Name == name {
			return site.Path
		}
	}
	return Path{}
}

// shortestPaths are the shortest ways from a site to all that links lead to: Dijkstra's, on a handful of sites.
func (in Input) shortestPaths(from string) map[string]sitePath {
	known, done := map[string]sitePath{from: sitePath{}.along(in.site(from))}, map[string]bool{}
	for {
		next, least := "", time.Duration(math.MaxInt64)
		for name, one := range known {
			if length := one.oneWay(); !done[name] && (length < least || length == least && name < next) {
				next, least = name, length
			}
		}
		if least == math.MaxInt64 {
			break
		}
		done[next] = true
		for i, link := range in.Links {
			for _, end := range []struct {
				near, far string
				isBack    bool
			}{{link.From, link.To, false}, {link.To, link.From, true}} {
				if end.near != next || done[end.far] {
					continue
				}
				longer := known[next].over(link, stage{i, end.isBack})
				if have, isKnown := known[end.far]; !isKnown || longer.oneWay() < have.oneWay() {
					known[end.far] = longer
				}
			}
		}
	}
	for name, one := range known {
		if name != from {
			known[name] = one.along(in.site(name))
		}
	}
	return known
}

// over is a way that goes on over a link.
func (w sitePath) over(link Link, at stage) sitePath {
	longer := w.along(link.Path)
	longer.bits = slowest(w.bits, link.Bits)
	longer.stages = append(append([]stage(nil), w.stages...), at)
	return longer
}

// slowest is the smaller of two bandwidths; 0 is one that is not known.
func slowest(a, b float64) float64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
