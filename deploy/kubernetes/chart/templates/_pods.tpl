{{/* Fields that every pod of a run has. */}}
{{- define "headroom.pod" -}}
restartPolicy: Never
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The volume of certificates, given as a list: the chart's root and a role. */}}
{{- define "headroom.certs" -}}
{{- $root := index . 0 -}}
{{- $role := index . 1 -}}
{{- $tls := $root.Values.tls -}}
{{- if $tls.certManager.enabled -}}
- name: certs
  projected:
    defaultMode: 288
    sources:
{{- if eq $role "server" }}
      - secret:
          name: {{ $root.Release.Name }}-server-tls
          items:
            - {key: tls.crt, path: server.pem}
            - {key: tls.key, path: server.key}
{{- end }}
      - secret:
          name: {{ $root.Release.Name }}-client-tls
          items:
            - {key: ca.crt, path: ca.pem}
            - {key: tls.crt, path: client.pem}
            - {key: tls.key, path: client.key}
      - secret:
          name: {{ $tls.certManager.tokenSecret }}
          items:
            - {key: token, path: token}
{{- else -}}
- name: certs
  secret: {secretName: {{ ternary $tls.serverSecret $tls.clientSecret (eq $role "server") }}, defaultMode: 288}
{{- end -}}
{{- end -}}

{{- define "headroom.coordinatorJob" -}}
backoffLimit: 50
podReplacementPolicy: Failed  # never two pods on one log
podFailurePolicy:
  rules:
    # The run has ended: another coordinator would end the same way.
    - action: FailJob
      onExitCodes: {operator: In, values: [2, 3, 4, 5, 130]}
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: Count
      onExitCodes: {operator: NotIn, values: [0, 2, 3, 4, 5, 130]}
template:
  metadata:
    labels: {app: {{ .Release.Name }}, role: coordinator}
  spec:
    {{- include "headroom.pod" . | nindent 4 }}
    terminationGracePeriodSeconds: 30
    {{- with .Values.coordinator.nodeSelector }}
    nodeSelector: {{ toJson . }}
    {{- end }}
    {{- with .Values.coordinator.tolerations }}
    tolerations: {{ toJson . }}
    {{- end }}
    containers:
      - name: coordinator
        image: {{ .Values.images.coordinator | quote }}
        {{- with .Values.images.pullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}
        # If this pod alone is evicted, the run must not end, but SIGTERM would
        # end it. So the signal is ignored: the pod is killed, and its successor
        # continues from the log.
        command: [sh, -c, 'trap "" TERM; exec headroom "$@"', headroom]
        args:
          - coordinator
          - --listen=0.0.0.0:29500
          - --log=/state/coordinator.log
          - --certs=/certs
          - --expected-workers={{ mul (int .Values.workers.pods) (include "headroom.processes" . | int) }}
          - --project=/runs
          {{- /* Refuses a pod without GPU instead of training on its CPU. */}}
          {{- if and (gt (int .Values.workers.gpus) 0) (not (regexMatch "(^| )--device(=| |$)" (join " " .Values.run.flags))) }}
          - --device=all
          {{- end }}
          {{- range .Values.run.flags }}
          - {{ . | quote }}
          {{- end }}
        ports:
          - {name: control, containerPort: 29500}
        resources:
          requests: {cpu: {{ .Values.coordinator.cpu | quote }}, memory: {{ .Values.coordinator.memory }}}
          limits: {memory: {{ .Values.coordinator.memoryLimit }}}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        startupProbe:
          tcpSocket: {port: control}
          periodSeconds: 1
          failureThreshold: 60
        readinessProbe:
          exec:
            command: [headroom, status, --coordinator=127.0.0.1:29500, --certs=/certs, --json]
          periodSeconds: 10
          timeoutSeconds: 6
        livenessProbe:
          exec:
            command: [headroom, status, --coordinator=127.0.0.1:29500, --certs=/certs, --json]
          periodSeconds: 20
          timeoutSeconds: 6
          failureThreshold: 3
        volumeMounts:
          - {name: state, mountPath: /state}
          - {name: runs, mountPath: /runs}
          - {name: data, mountPath: /data, readOnly: true}
          - {name: certs, mountPath: /certs, readOnly: true}
          - {name: tmp, mountPath: /tmp}
    volumes:
      - name: state
        persistentVolumeClaim: {claimName: {{ include "headroom.claim" (list . "state") }}}
      - name: runs
        persistentVolumeClaim: {claimName: {{ include "headroom.claim" (list . "runs") }}}
      - name: data
        persistentVolumeClaim: {claimName: {{ include "headroom.claim" (list . "data") }}, readOnly: true}
      {{- include "headroom.certs" (list . "server") | nindent 6 }}
      - name: tmp
        emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{/* The resources of a worker's pod, used as request and as limit. */}}
{{- define "headroom.workerResources" -}}
{{- $workers := .Values.workers -}}
cpu: {{ $workers.cpu | quote }}
memory: {{ $workers.memory }}
{{- if gt (int $workers.gpus) 0 }}
{{ $workers.gpuResource }}: {{ $workers.gpus }}
{{- end }}
{{- if gt (int $workers.efa) 0 }}
vpc.amazonaws.com/efa: {{ $workers.efa }}
hugepages-2Mi: {{ $workers.hugepages }}
{{- end }}
{{- end -}}

{{- define "headroom.workerJob" -}}
{{- $workers := .Values.workers -}}
completionMode: Indexed
completions: {{ $workers.pods }}
parallelism: {{ $workers.pods }}
backoffLimit: 50
podReplacementPolicy: Failed  # never two pods with one index
podFailurePolicy:
  rules:
    # The request or the data is wrong: another pod would fail too.
    - action: FailJob
      onExitCodes: {containerName: agent, operator: In, values: [2, 3, 4]}
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    # The pod was asked to end (drained).
    - action: Ignore
      onExitCodes: {containerName: agent, operator: In, values: [130]}
template:
  metadata:
    labels: {app: {{ .Release.Name }}, role: worker}
  spec:
    {{- include "headroom.pod" . | nindent 4 }}
    # Enough to stop at a committed step and save.
    terminationGracePeriodSeconds: {{ $workers.gracePeriodSeconds }}
    {{- with $workers.priorityClassName }}
    priorityClassName: {{ . }}
    {{- end }}
    {{- with $workers.runtimeClassName }}
    runtimeClassName: {{ . }}
    {{- end }}
    {{- with $workers.nodeSelector }}
    nodeSelector: {{ toJson . }}
    {{- end }}
    {{- with $workers.affinity }}
    affinity: {{ toJson . }}
    {{- end }}
    {{- if or (gt (int $workers.gpus) 0) $workers.tolerations }}
    tolerations:
      {{- if gt (int $workers.gpus) 0 }}
      - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
      {{- end }}
      {{- range $workers.tolerations }}
      - {{ toJson . }}
      {{- end }}
    {{- end }}
    containers:
      - name: agent
        image: {{ .Values.images.worker | quote }}
        {{- with .Values.images.pullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}
        args:
          - agent
          - --coordinator={{ .Release.Name }}-coordinator:29500
          - --certs=/certs
          - --processes={{ include "headroom.processes" . }}
        {{- with $workers.env }}
        env: {{ toJson . }}
        {{- end }}
        resources:
          requests:
            {{- include "headroom.workerResources" . | nindent 12 }}
          limits:
            {{- include "headroom.workerResources" . | nindent 12 }}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          # EFA pins memory. For a user who is not root the capability has no
          # effect if the runtime sets no ambient capabilities. Then the limit
          # on locked memory of the node's containerd applies
          # (LimitMEMLOCK=infinity).
          capabilities: {drop: [ALL]{{ if gt (int $workers.efa) 0 }}, add: [IPC_LOCK]{{ end }}}
        volumeMounts:
          - {name: runs, mountPath: /runs}
          - {name: data, mountPath: /data, readOnly: true}
          - {name: certs, mountPath: /certs, readOnly: true}
          - {name: tmp, mountPath: /tmp}
          - {name: shm, mountPath: /dev/shm}
    volumes:
      - name: runs
        persistentVolumeClaim: {claimName: {{ include "headroom.claim" (list . "runs") }}}
      - name: data
        persistentVolumeClaim: {claimName: {{ include "headroom.claim" (list . "data") }}, readOnly: true}
      {{- include "headroom.certs" (list . "client") | nindent 6 }}
      - name: tmp
        emptyDir: {sizeLimit: {{ $workers.temporary }}}
      # For libraries. Tensors between workers of a pod use anonymous shared
      # memory, which counts against the memory limit.
      - name: shm
        emptyDir: {medium: Memory, sizeLimit: {{ $workers.sharedMemory }}}
{{- end -}}

{{/* Kueue's labels. */}}
{{- define "headroom.queueLabels" -}}
{{- with .Values.queue.name }}, kueue.x-k8s.io/queue-name: {{ . }}{{ end -}}
{{- with .Values.queue.priorityClass }}, kueue.x-k8s.io/priority-class: {{ . }}{{ end -}}
{{- end -}}
