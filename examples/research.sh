#!/bin/sh
# From a question to evidence that others can verify, in six steps, including the verification: about half a minute on
# two cores. Run it in an empty folder. The training runs are real but small.
set -eu
fairtrial=${FAIRTRIAL:-fairtrial}
sweep='sweep classify --param width=4,16 --runs 3 --steps 150 --batch-size 64 --no-stack --study widths'

# 1. Describe the artifact. From now on, commands in this folder write to its store and are logged.
$fairtrial research init --id widths --title 'How wide must a small classifier be?' --type experiment \
    --author 'Your Name' --license CC-BY-4.0 --keywords 'width, MNIST-1D'

# 2. Register the study, its analysis and its seeds, before the first run.
$fairtrial research preregister artifact.yaml --hypothesis 'Sixteen units do better than four.' \
    --methods 'Three seeds each, paired; the report split decides.' --command "$sweep" --derive-seeds 3

# 3. Run the registered study.
$fairtrial $sweep

# 4. Price every setting.
$fairtrial cost-performance widths --gpu t4

# 5. Choose a setting under constraints that the measured values must meet.
$fairtrial recommend widths --gpu t4 --max-cost 0.01 --max-time 0.1 --min-accuracy 0.2 --format json > choice.json
$fairtrial research add choice.json

# 6. Bundle everything, and verify every number as anyone else can.
$fairtrial research bundle artifact.yaml --zip
$fairtrial research verify widths-0.1.0.zip
