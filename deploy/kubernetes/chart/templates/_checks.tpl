{{/* Refuses combinations of values that are valid one by one. */}}
{{- define "headroom.check" -}}
{{- if gt (len .Release.Name) 50 -}}
{{- fail (printf "the release's name %s has %d characters: give one of at most 50" .Release.Name (len .Release.Name)) -}}
{{- end -}}
{{- if and (gt (int .Values.workers.efa) 0) (eq (int .Values.workers.gpus) 0) -}}
{{- fail "workers.efa: EFA adapters serve NCCL, and workers.gpus is 0: set workers.gpus, or workers.efa to 0" -}}
{{- end -}}
{{- if and .Values.queue.priorityClass (not .Values.queue.name) -}}
{{- fail "queue.priorityClass: a priority needs a queue: set queue.name" -}}
{{- end -}}
{{- range .Values.run.flags -}}
{{- if regexMatch "^--(listen|log|certs|token-file|expected-workers|project|coordinator|processes|insecure-network|init-certs|cert-names)(=|$)" . -}}
{{- fail (printf "run.flags: %s is set by the chart: leave it out" (regexFind "^--[a-z-]+" .)) -}}
{{- end -}}
{{- if regexMatch "\\s" . -}}
{{- fail (printf "run.flags: '%s' has white space: write --flag=value, one an entry" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The number of workers of a pod. */}}
{{- define "headroom.processes" -}}
{{- if gt (int .Values.workers.processes) 0 -}}
{{- .Values.workers.processes -}}
{{- else -}}
{{- max 1 (int .Values.workers.gpus) -}}
{{- end -}}
{{- end -}}

{{/* The claim of a volume, given as a list: the chart's root and its name. */}}
{{- define "headroom.claim" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $made := ternary "coordinator" $name (eq $name "state") -}}
{{- (index $root.Values.volumes $name).existingClaim | default (printf "%s-%s" $root.Release.Name $made) -}}
{{- end -}}
