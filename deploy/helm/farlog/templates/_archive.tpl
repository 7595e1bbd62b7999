{{/* the archive reads the drain's store, and writes there how far it is: it is a container of the drain's pod */}}
{{- define "farlog.archive" -}}
- name: archive
  command: [/usr/bin/farlog-archive]
  args: [run]
  {{- include "farlog.container" (merge (dict "own" .Values.archive) .) | nindent 2 }}
  env:
  - {name: FARLOG_STORE_DIR, value: /var/lib/farlog/drain/store}
  - {name: FARLOG_ARCHIVE_URL, value: {{ .Values.archive.url | quote }}}
  - {name: FARLOG_RETAIN, value: {{ .Values.archive.retain | quote }}}
  {{- with .Values.archive.endpoint }}
  - {name: FARLOG_ARCHIVE_ENDPOINT, value: {{ . | quote }}}
  {{- end }}
  {{- with .Values.archive.region }}
  - {name: FARLOG_ARCHIVE_REGION, value: {{ . | quote }}}
  {{- end }}
  {{- if .Values.archive.credentialsSecret }}
  - {name: AWS_SHARED_CREDENTIALS_FILE, value: /etc/farlog/s3/credentials}
  {{- end }}
  {{- include "farlog.env" .Values.archive.env | nindent 2 }}
  volumeMounts:
  - {name: data, mountPath: /var/lib/farlog}
  {{- if .Values.archive.credentialsSecret }}
  - {name: credentials, mountPath: /etc/farlog/s3, readOnly: true}
  {{- end }}
{{- end }}
