(* Answers in a countable set, such as integers with noise that has no bound: what finite laws satisfy,
   countable ones satisfy. A law is cut after its first N outcomes, the others become one.
   docs/notes/proofs.md *)
From mathcomp Require Import all_ssreflect all_algebra.
From dptopk Require Import Game Rounds Setwise.
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

(* Analysts who see whole numbers. *)
Definition ccls (c : cost R) (P Q : claw) := if c.1 then cBR c.2 P Q else cDP c.2 P Q.
Variables (D : Type) (nb : D -> D -> Prop).
Variables (T : Type) (may : T -> cost R -> Prop) (next : T -> cost R -> T).
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

(* The same analyst with laws that are cut, who stops at the outcome N. *)
Local Notation analyst := (@analyst R (cost R) (@cls R) D nb T may next).

Lemma cut_cost N c M : chas_cost c M -> has_cost (@cls R) nb c (fun d => cut (M d) N).
Proof.
move=> H d d' dd'; have := H _ _ dd'; rewrite /ccls /cls.
by case: c.1; [apply: cut_BR|apply: cut_DP].
Qed.

Fixpoint finite N s (A : canalyst s) : analyst s :=
  match A with
  | CStop s => Stop (@cls R) nb may next s
  | CToss s w k => Toss (cut w N)
      (fun i => if (i < N)%N then finite N (k i) else Stop (@cls R) nb may next s)
  | CAsk s c M m h k => Ask m (cut_cost N h)
      (fun i => if (i < N)%N then finite N (k i) else Stop (@cls R) nb may next (next s c))
  end.

Definition small N (S : seq nat -> bool) t := all (fun i => (i < N)%N) t && S t.
Lemma Pr_false s (A : analyst s) d S : S =1 xpred0 -> Pr A d S = 0.
Proof.
elim: A S => {s} [s|s n w k IH|s c n M m h k IH] S e /=; first by rewrite e.
- by apply: big1 => i _; rewrite IH ?mulr0 // => t; apply: e.
by apply: big1 => i _; rewrite IH ?mulr0 // => t; apply: e.
Qed.
Lemma Pr_same s (A : analyst s) d S S' : S =1 S' -> Pr A d S = Pr A d S'.
Proof.
elim: A S S' => {s} [s|s n w k IH|s c n M m h k IH] S S' e /=; first by rewrite e.
- by apply: eq_bigr => i _; congr (_ * _); apply: IH => t; apply: e.
by apply: eq_bigr => i _; congr (_ * _); apply: IH => t; apply: e.
Qed.

Lemma finite_Pr N s (A : canalyst s) d S : Pr (finite N A) d (small N S) = PrN N A d S.
Proof.
elim: A S => {s} [s|s w k IH|s c M m h k IH] S /=; first by [].
- rewrite big_ord_recr /= ltnn Pr_false ?mulr0 ?addr0; last by move=> t; rewrite /small /= ltnn.
  apply: eq_bigr => i _; rewrite /first /= ltn_ord -IH; congr (_ * _).
  by apply: Pr_same => t; rewrite /small /= ltn_ord.
rewrite big_ord_recr /= ltnn Pr_false ?mulr0 ?addr0; last by move=> t; rewrite /small /= ltnn.
apply: eq_bigr => i _; rewrite /first /= ltn_ord -IH; congr (_ * _).
by apply: Pr_same => t; rewrite /small /= ltn_ord.
Qed.

(* What bounds all analysts on finite laws bounds those on countable ones: at every N, so in the limit. *)
Theorem countable_outcomes ok W s (A : canalyst s) d d' S u N :
  bounds may next ok W -> ok s -> nb d d' -> 0 <= u ->
  PrN N A d S <= u * PrN N A d' S + W s 1 u.
Proof.
move=> HW oks dd' u0; rewrite -!finite_Pr.
exact: (bounds_every_play (finite N A) (small N S) HW oks dd' u0).
Qed.
End Countable.
