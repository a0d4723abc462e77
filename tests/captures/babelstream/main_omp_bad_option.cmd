omp-stream --nosuchoption
