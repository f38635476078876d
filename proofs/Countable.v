(* Answers in a countable set, such as integers with noise that has no bound: what finite laws satisfy,
   countable ones satisfy. A law is cut after its first N outcomes, the others become one.
   docs/notes/proofs.md *)
From mathcomp Require Import all_ssreflect all_algebra.
From dptopk Require Import Game Rounds Setwise Failing.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Countable.
Variable R : realFieldType.

(* Masses of the outcomes 0, 1, 2, ...; the sums of the first N come as near to 1 as one likes. *)
Record claw := CLaw {
  mass :> nat -> R;
  mass_ge0 : forall i, 0 <= mass i;
  mass_le1 : forall N, \sum_(i < N) mass i <= 1;
  mass_near : forall e, 0 < e -> exists N, 1 - e < \sum_(i < N) mass i }.

Lemma sum_mono (P : claw) N M : (N <= M)%N -> \sum_(i < N) P i <= \sum_(i < M) P i.
Proof.
move=> NM; rewrite -(subnKC NM) big_split_ord /= ler_addl.
by apply: sumr_ge0 => i _; apply: mass_ge0.
Qed.

(* The first N outcomes, and the rest as one: a law on N + 1 outcomes. *)
Definition first (P : claw) N (i : 'I_N.+1) : R :=
  if (i < N)%N then P i else 1 - \sum_(j < N) P j.
Lemma first_ge0 P N i : 0 <= @first P N i.
Proof. by rewrite /first; case: ifP => _; [apply: mass_ge0|rewrite subr_ge0 mass_le1]. Qed.
Lemma first_sum P N : \sum_i @first P N i = 1.
Proof.
rewrite big_ord_recr /= /first ltnn.
under eq_bigr => i _ do rewrite /= ltn_ord.
by rewrite addrC subrK.
Qed.
Definition cut P N : law R N.+1 := Law (@first_ge0 P N) (@first_sum P N).

(* The classes, in the same words as for finite laws. *)
Definition cDP (r : R) (P Q : claw) := forall i, P i <= r * Q i /\ Q i <= r * P i.
Definition cBR (r : R) (P Q : claw) := exists s, forall i, P i <= s * Q i /\ s * Q i <= r * P i.

(* What holds of all outcomes holds of the rest. *)
Lemma rest_le (P Q : claw) (a b : R) N : 0 <= a -> 0 <= b -> (forall i, a * P i <= b * Q i) ->
  a * (1 - \sum_(i < N) P i) <= b * (1 - \sum_(i < N) Q i).
Proof.
move=> a0 b0 H; rewrite leNgt; apply/negP => lt.
have ap : 0 < a.
  rewrite lt_def a0 andbT; apply/eqP => a00; move: lt; rewrite a00 mul0r ltNge.
  by rewrite mulr_ge0 // subr_ge0 mass_le1.
pose gap := (a * (1 - \sum_(i < N) P i) - b * (1 - \sum_(i < N) Q i)) / a.
have gap0 : 0 < gap by rewrite divr_gt0 // subr_gt0.
have [M near] := mass_near P gap0.
have {near} near : 1 - gap < \sum_(i < N + M) P i.
  by apply: (lt_le_trans near); apply: sum_mono; rewrite leq_addl.
have tail : a * (\sum_(i < N + M) P i - \sum_(i < N) P i) <= b * (1 - \sum_(i < N) Q i).
  apply: (@le_trans _ _ (b * (\sum_(i < N + M) Q i - \sum_(i < N) Q i))); last first.
    by apply: ler_wpmul2l => //; rewrite ler_add2r mass_le1.
  rewrite !big_split_ord /= ![_ + _ - _]addrAC !subrr !add0r !mulr_sumr.
  by apply: ler_sum => i _.
have : a * (1 - \sum_(i < N) P i) - a * gap < a * (\sum_(i < N + M) P i - \sum_(i < N) P i).
  by rewrite -mulrBr ltr_pmul2l // addrAC ltr_add2r.
rewrite /gap [a * (_ / _)]mulrC divfK ?gt_eqF // opprB addrC subrK => lt'.
by move: (lt_le_trans lt' tail); rewrite ltxx.
Qed.

Lemma some_mass (P : claw) : ~ (forall i, P i <= 0).
Proof.
move=> H; have [M] := mass_near P ltr01; rewrite subrr ltNge => /negP; apply.
by rewrite -oppr_ge0 -sumrN; apply: sumr_ge0 => i _; rewrite oppr_ge0.
Qed.

Lemma cut_DP r P Q N : cDP r P Q -> DP r (cut P N) (cut Q N).
Proof.
move=> H.
have r0 : 0 <= r.
  rewrite leNgt; apply/negP => rn; apply: (@some_mass P) => i; have [h _] := H i.
  by rewrite (le_trans h) // nmulr_rle0 // mass_ge0.
move=> i; rewrite /= /first; case: ifP => _; first exact: H.
have := @rest_le P Q 1 r N ler01 r0; have := @rest_le Q P 1 r N ler01 r0.
rewrite !mul1r => h1 h2; split; [apply: h2|apply: h1] => j.
  by rewrite mul1r; case: (H j).
by rewrite mul1r; case: (H j).
Qed.

Lemma cut_BR r P Q N : cBR r P Q -> BR r (cut P N) (cut Q N).
Proof.
case=> s H.
have s0 : 0 <= s.
  rewrite leNgt; apply/negP => sn; apply: (@some_mass P) => i; have [h _] := H i.
  by rewrite (le_trans h) // nmulr_rle0 // mass_ge0.
have r0 : 0 <= r.
  rewrite leNgt; apply/negP => rn; apply: (@some_mass P) => i; have [h h'] := H i.
  by rewrite (le_trans h) // (le_trans h') // nmulr_rle0 // mass_ge0.
exists s => i; rewrite /= /first; case: ifP => _; first exact: H.
have := @rest_le P Q 1 s N ler01 s0; have := @rest_le Q P s r N s0 r0.
rewrite !mul1r => h1 h2; split; [apply: h2|apply: h1] => j.
  by rewrite mul1r; case: (H j).
by case: (H j).
Qed.

(* Analysts who see whole numbers; costs of any class. *)
Definition cclass := claw -> claw -> Prop.

Section Play.
Variables (C : Type) (ccls : C -> cclass).
Variables (D : Type) (nb : D -> D -> Prop).
Variables (T : Type) (may : T -> C -> Prop) (next : T -> C -> T).
Definition chas_cost c (M : D -> claw) := forall d d', nb d d' -> ccls c (M d) (M d').
Inductive canalyst : T -> Type :=
| CStop s : canalyst s
| CToss s : claw -> (nat -> canalyst s) -> canalyst s
| CAsk s c (M : D -> claw) : may s c -> chas_cost c M -> (nat -> canalyst (next s c)) -> canalyst s.

(* The probability of S among the transcripts whose numbers are all below N: it grows with N, and what
   it grows to is the probability of S. *)
Fixpoint PrN N s (A : canalyst s) (d : D) (S : seq nat -> bool) : R :=
  match A with
  | CStop _ => (S [::])%:R
  | CToss _ w k => \sum_(i < N) w i * PrN N (k i) d (fun t => S (nat_of_ord i :: t))
  | CAsk _ _ M _ _ k => \sum_(i < N) M d i * PrN N (k i) d (fun t => S (nat_of_ord i :: t))
  end.

Lemma PrN_ge0 N s (A : canalyst s) d S : 0 <= PrN N A d S.
Proof.
elim: A S => {s} [s|s w k IH|s c M m h k IH] S /=; first exact: ler0n.
- by apply: sumr_ge0 => i _; rewrite mulr_ge0 ?mass_ge0 ?IH.
by apply: sumr_ge0 => i _; rewrite mulr_ge0 ?mass_ge0 ?IH.
Qed.

Lemma PrN_mono N M s (A : canalyst s) d S : (N <= M)%N -> PrN N A d S <= PrN M A d S.
Proof.
move=> NM.
have sums (f g : nat -> R) : (forall i, 0 <= f i) -> (forall i, f i <= g i) ->
    \sum_(i < N) f i <= \sum_(i < M) g i.
  move=> f0 fg; rewrite -(subnKC NM) big_split_ord /=.
  apply: (@le_trans _ _ (\sum_(i < N) g i)); first by apply: ler_sum.
  by rewrite ler_addl; apply: sumr_ge0 => i _; apply: le_trans (f0 _) (fg _).
elim: A S => {s} [s|s w k IH|s c P m h k IH] S //=.
- apply: (sums (fun i => w i * PrN N (k i) d (fun t => S (i :: t)))
               (fun i => w i * PrN M (k i) d (fun t => S (i :: t)))) => i.
    by rewrite mulr_ge0 ?mass_ge0 ?PrN_ge0.
  by rewrite ler_wpmul2l ?mass_ge0.
apply: (sums (fun i => P d i * PrN N (k i) d (fun t => S (i :: t)))
             (fun i => P d i * PrN M (k i) d (fun t => S (i :: t)))) => i.
  by rewrite mulr_ge0 ?mass_ge0 ?PrN_ge0.
by rewrite ler_wpmul2l ?mass_ge0.
Qed.

Lemma PrN_le1 N s (A : canalyst s) d S : PrN N A d S <= 1.
Proof.
have most (P : claw) (f : 'I_N -> R) : (forall i, f i <= 1) -> \sum_(i < N) P i * f i <= 1.
  move=> f1; apply: le_trans (mass_le1 P N); apply: ler_sum => i _.
  by rewrite ler_pimulr ?mass_ge0.
elim: A S => {s} [s|s w k IH|s c M m h k IH] S /=; first by rewrite lern1; case: (S [::]).
- by apply: most => i; apply: IH.
by apply: most => i; apply: IH.
Qed.

(* One round: what the first N outcomes are worth, for every N. *)
Definition cstep_ok (c : C) (W W' : R -> R -> R) := forall P Q, ccls c P Q ->
  forall N p q, 0 <= p -> 0 <= q -> \sum_(i < N) W (p * P i) (q * Q i) <= W' p q.

Record cfamily (ok : T -> Prop) (W : T -> R -> R -> R) : Prop := CFamily {
  cf_next : forall s c, ok s -> may s c -> ok (next s c);
  cf_pos : forall s p q, ok s -> 0 <= p -> 0 <= q -> 0 <= W s p q;
  cf_sub : forall s p q, ok s -> 0 <= p -> 0 <= q -> p - q <= W s p q;
  cf_step : forall s c, ok s -> may s c -> cstep_ok c (W (next s c)) (W s) }.

Theorem countable_play ok W s (A : canalyst s) d d' S N p q : cfamily ok W -> ok s -> nb d d' ->
  0 <= p -> 0 <= q -> p * PrN N A d S - q * PrN N A d' S <= W s p q.
Proof.
case=> okn W0 W1 Ws oks dd'; elim: A oks S p q => {s} [s|s w k IH|s c M m h k IH] oks S p q p0 q0 /=.
- by case: (S [::]); rewrite ?mulr1 ?mulr0 ?subrr; [apply: W1|apply: W0].
- apply: (@le_trans _ _ (\sum_(i < N) w i * W s p q)); last first.
    by rewrite -mulr_suml ler_pimull ?W0 // mass_le1.
  rewrite !mulr_sumr -sumrB; apply: ler_sum => i _.
  by rewrite ![_ * (w i * _)]mulrCA -mulrBr; apply: ler_wpmul2l; [apply: mass_ge0|apply: IH].
apply: le_trans (Ws s c oks m _ _ (h _ _ dd') N p q p0 q0).
rewrite !mulr_sumr -sumrB; apply: ler_sum => i _; rewrite !mulrA.
by apply: IH; rewrite ?mulr_ge0 ?mass_ge0 //; apply: okn.
Qed.
End Play.

(* Pure DP and bounded range: what bounds all analysts on finite laws bounds those on countable ones,
   at every N, so in the limit. *)
Definition ccls (c : cost R) (P Q : claw) := if c.1 then cBR c.2 P Q else cDP c.2 P Q.

Lemma bounds_countable T may next ok (W : T -> R -> R -> R) :
  bounds may next ok W -> cfamily ccls may next ok W.
Proof.
case=> okn r1 sW W0 W1 WB; split=> // s c oks ms P Q cPQ N p q p0 q0.
have step : step_ok (@cls R) c (W (next s c)) (W s).
  by apply: bellman_step; [apply: (r1 s)|apply: sW; apply: okn|move=> *; apply: WB].
have cut_cPQ : cls c (cut P N) (cut Q N).
  by move: cPQ; rewrite /ccls /cls; case: c.1; [apply: cut_BR|apply: cut_DP].
apply: le_trans (step _ _ _ cut_cPQ p q p0 q0); rewrite big_ord_recr /= /first ltnn.
under [in X in _ <= X]eq_bigr => i _ do rewrite /= ltn_ord.
by rewrite ler_addl; apply: W0; rewrite ?mulr_ge0 ?subr_ge0 ?mass_le1 //; apply: okn.
Qed.

Theorem countable_outcomes T may next ok W (D : Type) (nb : D -> D -> Prop) s
  (A : @canalyst (cost R) ccls D nb T may next s) d d' S u N :
  bounds may next ok W -> ok s -> nb d d' -> 0 <= u ->
  PrN N A d S <= u * PrN N A d' S + W s 1 u.
Proof.
move=> HW oks dd' u0; rewrite -ler_subl_addl -[PrN N A d S]mul1r.
exact: (countable_play A S N (bounds_countable HW) oks dd' ler01 u0).
Qed.

(* Costs that fail: on a set G of outcomes as the class says, up to an excess b of mass at most c.2, and
   no more than b elsewhere; good_set of Game.v. *)
Definition cgood_set (C : Type) (cl : C -> cclass) (c : C * R) : cclass := fun P Q =>
  exists (P1 Q1 : claw) (b : nat -> R) (G : pred nat),
  [/\ cl c.1 P1 Q1, forall i, 0 <= b i, forall N, \sum_(i < N) b i <= c.2,
      forall i, G i -> P i <= P1 i + b i /\ Q1 i <= Q i & forall i, ~~ G i -> P i <= b i].

Section Fail.
Variables (C : Type) (cl : C -> cclass) (T : Type) (may : T -> C -> Prop) (next : T -> C -> T).
Variables (ok : T -> Prop) (W : T -> R -> R -> R).
Hypothesis W_family : cfamily cl may next ok W.
Hypothesis W_regular : forall s, ok s -> regular (W s).
Hypothesis W_zero : forall s, ok s -> W s 0 0 <= 0.

Theorem countable_failures (D : Type) (nb : D -> D -> Prop) s m
  (A : @canalyst (C * R) (cgood_set cl) D nb (T * R) (may_fail may) (next_fail next) (s, m)) d d' S u N :
  ok s -> 0 <= m -> nb d d' -> 0 <= u -> PrN N A d S <= u * PrN N A d' S + (W s 1 u + m).
Proof.
move=> oks m0 dd' u0; case: W_family => okn W0 W1 Ws.
pose V := fun (t : T * R) p q => W t.1 p q + p * t.2.
have -> : W s 1 u + m = V (s, m) 1 u by rewrite /V /= mul1r.
rewrite -ler_subl_addl -[PrN N A d S]mul1r.
suff fam : cfamily (cgood_set cl) (may_fail may) (next_fail next) (fun t : T * R => ok t.1 /\ 0 <= t.2) V.
  exact: (countable_play A S N fam (conj oks m0) dd' ler01 u0).
rewrite /V; split.
- by move=> t c [okt t0] [mt ct]; split; [apply: okn|rewrite subr_ge0].
- by move=> t p q [okt t0] p0 q0; rewrite addr_ge0 ?mulr_ge0 // W0.
- move=> t p q [okt t0] p0 q0; apply: (le_trans (W1 t.1 p q okt p0 q0)).
  by rewrite ler_addl mulr_ge0.
move=> t c [okt t0] [mt ct] P Q [P1 [Q1 [b [G [c1 b0 bd HG HN]]]]] k p q p0 q0 /=.
have [mq mp lip] := W_regular (okn _ _ okt mt).
have okc := okn _ _ okt mt.
rewrite big_split /= -mulr_suml -mulr_sumr.
apply: (@le_trans _ _ (W t.1 p q + p * c.2 + p * (t.2 - c.2))); last first.
  by rewrite -addrA -mulrDr [c.2 + _]addrC subrK.
apply: ler_add; last first.
  by rewrite -mulrA; apply: ler_wpmul2l => //; rewrite ler_pimull ?subr_ge0 ?mass_le1.
apply: (@le_trans _ _ (\sum_(i < k) W (next t.1 c.1) (p * P1 i) (q * Q1 i) + p * \sum_(i < k) b i)).
  rewrite mulr_sumr -big_split; apply: ler_sum => i _ /=.
  case: (boolP (G i)) => Gi.
    have [HP HQ] := HG i Gi.
    apply: (@le_trans _ _ (W (next t.1 c.1) (p * P i) (q * Q1 i))).
      by apply: mq; rewrite ?mulr_ge0 ?mass_ge0 // ler_wpmul2l.
    apply: (@le_trans _ _ (W (next t.1 c.1) (p * P1 i + p * b i) (q * Q1 i))).
      by apply: mp; rewrite ?mulr_ge0 ?mass_ge0 // -mulrDr ler_wpmul2l.
    by apply: lip; rewrite ?mulr_ge0 ?mass_ge0.
  apply: (@le_trans _ _ (W (next t.1 c.1) (0 + p * P i) 0)).
    by rewrite add0r; apply: mq; rewrite ?mulr_ge0 ?mass_ge0.
  apply: (le_trans (lip _ _ _ _ _ _)); rewrite ?mulr_ge0 ?mass_ge0 //.
  apply: ler_add; last by rewrite ler_wpmul2l // HN.
  by apply: (le_trans (W_zero okc)); rewrite W0 ?mulr_ge0 ?mass_ge0.
by apply: ler_add; [apply: (Ws t.1 c.1)|rewrite ler_wpmul2l].
Qed.
End Fail.
End Countable.
