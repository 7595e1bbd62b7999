#!/bin/sh
# grafana.sh -- deploy/grafana against Grafana's own schema: the types that Grafana generates of it (@grafana/schema),
# checked by the TypeScript compiler. A field that Grafana does not know, one that it needs and is not there, or a value
# that is none of those it has, is an error. Needs npm; what it gets lies in build/grafana.
# usage: scripts/grafana.sh      "grafana: N dashboards, of schema VERSION", or the errors and exit code 1
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
dir=$root/build/grafana
schema=13.2.3
typescript=5.9.3
mkdir -p "$dir"
cd "$dir"
if [ "$(cat version 2>/dev/null)" != "$schema $typescript" ]; then
	[ -f package.json ] || echo '{"private": true}' >package.json
	npm install --ignore-scripts --no-audit --no-fund --silent "@grafana/schema@$schema" "typescript@$typescript" >&2
	echo "$schema $typescript" >version
fi
raw=./node_modules/@grafana/schema/dist/types/raw
{
	echo "import type { Dashboard, FieldConfig, FieldConfigSource, Panel, RowPanel } from '$raw/dashboard/x/types.gen';"
	for panel in timeseries stat table; do
		echo "import type * as $panel from '$raw/composable/$panel/panelcfg/x/types.gen';"
	done
	# In JSON an enum's member is its text. What a kind of panel adds stands in another file of the schema than the
	# panel.
	cat <<'TYPES'
type Wire<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Wire<T[K]> } : T;
type Defaults<T> = Omit<Wire<FieldConfig>, 'custom'> & { custom?: Partial<Wire<T>> };
type Fields<T> = Omit<Wire<FieldConfigSource>, 'defaults'> & { defaults: Defaults<T> };
type Of<Kind, Options, Custom> = Omit<Wire<Panel>, 'type' | 'options' | 'fieldConfig'> &
	{ type: Kind; options: Partial<Wire<Options>>; fieldConfig: Fields<Custom> };
type Any = Wire<RowPanel>
	| Of<'timeseries', timeseries.Options, timeseries.FieldConfig>
	| Of<'stat', stat.Options, never>
	| Of<'table', table.Options, never>;
export type Page = Omit<Wire<Dashboard>, 'panels'> & { panels: Any[] };
TYPES
} >types.ts
rm -f page_*.ts
count=0
for page in "$root"/deploy/grafana/*.json; do
	count=$((count + 1))
	{
		echo "import type { Page } from './types';"
		echo 'export const page: Page ='
		cat "$page"
		echo ';'
	} >"page_$(basename "$page" .json).ts"
done
node_modules/.bin/tsc --noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler --target es2022 \
	page_*.ts
echo "grafana: $count dashboards, of schema $schema"
